{% load static %}/**
 * Shows a page of our own when there is no connection, and takes what another app shares. It keeps that page and its style,
 * and what was shared until the chat has it, which is at once; else nothing that anybody said.
 */

const KEPT = "recollect-{{ version }}";
// As in static/intake/attaching.js.
const SHARED = "recollect-shared";
const SHARE = "{% url 'intake:share' %}";
const HOME = "{% url 'intake:home' %}";
const OFFLINE = "{% url 'intake:offline' %}";
const FILES = [OFFLINE, "{% static 'intake/css/base.css' %}", "{% static 'intake/css/forms.css' %}", "{% static 'intake/css/plain.css' %}", "{% static 'intake/logo.svg' %}"];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll(FILES)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  const drop = (names) => Promise.all(names.filter((name) => ![KEPT, SHARED].includes(name)).map((name) => caches.delete(name)));
  event.waitUntil(caches.keys().then(drop).then(() => clients.claim()));
});

// Pages come from the network alone; only one that cannot be had is replaced. Their files are kept by the browser.
addEventListener("fetch", (event) => {
  if (event.request.method === "POST" && new URL(event.request.url).pathname === SHARE) return event.respondWith(take(event.request));
  const isPage = event.request.mode === "navigate" && event.request.method === "GET";
  const isOurs = FILES.includes(new URL(event.request.url).pathname);
  if (isPage) event.respondWith(fetch(event.request).catch(() => caches.match(OFFLINE)));
  else if (isOurs) event.respondWith(fetch(event.request).catch(() => caches.match(event.request)));
});

/** On this device alone: nothing is sent before its owner sends it. */
async function take(request) {
  const form = await request.formData();
  const words = ["title", "text", "url"].map((name) => String(form.get(name) ?? "").trim()).filter(Boolean);
  const files = form.getAll("files").filter((file) => file instanceof File && file.size);
  await caches.delete(SHARED);
  const cache = await caches.open(SHARED);
  const about = { text: [...new Set(words)].join("\n"), names: files.map(({ name }) => name), at: Date.now() };
  await Promise.all(files.map((file, number) => cache.put(`${SHARE}${number}`, new Response(file, { headers: { "Content-Type": file.type || "application/octet-stream" } }))));
  await cache.put(SHARE, Response.json(about));
  return Response.redirect(`${HOME}?shared=1`, 303);
}
