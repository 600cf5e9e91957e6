{% load static %}/** Shows a page of our own when there is no connection. It keeps that page and its style, and nothing that anybody said. */

const KEPT = "recollect-{{ version }}";
const OFFLINE = "{% url 'intake:offline' %}";
const FILES = [OFFLINE, "{% static 'intake/css/base.css' %}", "{% static 'intake/css/forms.css' %}", "{% static 'intake/css/plain.css' %}", "{% static 'intake/logo.svg' %}"];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll(FILES)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  const drop = (names) => Promise.all(names.filter((name) => name !== KEPT).map((name) => caches.delete(name)));
  event.waitUntil(caches.keys().then(drop).then(() => clients.claim()));
});

// Pages come from the network alone; only one that cannot be had is replaced. Their files are kept by the browser.
addEventListener("fetch", (event) => {
  const isPage = event.request.mode === "navigate" && event.request.method === "GET";
  const isOurs = FILES.includes(new URL(event.request.url).pathname);
  if (isPage) event.respondWith(fetch(event.request).catch(() => caches.match(OFFLINE)));
  else if (isOurs) event.respondWith(fetch(event.request).catch(() => caches.match(event.request)));
});
