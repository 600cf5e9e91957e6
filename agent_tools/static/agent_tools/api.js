/* Draws the OpenAPI document with Swagger UI. A call that is tried out goes out as the reader's own session or token. */

(() => {
  const place = document.getElementById("api");
  const isDark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark-mode", isDark.matches);
  follow();
  isDark.addEventListener("change", follow);

  const { for: person, csrfCookie = "csrftoken" } = document.documentElement.dataset;
  const begins = `${csrfCookie}=`;
  const csrfToken = () => document.cookie.split(/;\s*/).find((each) => each.startsWith(begins))?.slice(begins.length);
  const madeFor = person ? { "X-Recollect-For": person } : {};

  window.SwaggerUIBundle({
    url: place.dataset.document,
    domNode: place,
    deepLinking: true,
    defaultModelsExpandDepth: -1,
    docExpansion: "list",
    requestInterceptor: (request) => {
      const token = csrfToken();
      if (token && new URL(request.url, location.href).origin === location.origin) Object.assign(request.headers, { "X-CSRFToken": token, ...madeFor });
      return request;
    },
  });
})();
