// The page of a chat puts this document into a sandboxed frame and sends it what to show (static/intake/previews.js).
// Scripts inline, because a script of an address would be a way to reach the server.
const { nonce } = document.currentScript;
// What leads elsewhere: a browser looks up the name of a frame's server before the policy refuses to go there.
const LEADING = "script, iframe, frame, frameset, object, embed, meta, base, link, [attributeName$=href]";
const tell = (message) => parent.postMessage(message, "*");
// The colours of the pages (static/intake/css/base.css).
const COLOURS = {
  light: { primaryColor: "#dfeee9", primaryBorderColor: "#0f6f62", primaryTextColor: "#24221e", lineColor: "#625d53", textColor: "#24221e", edgeLabelBackground: "#efeae0", background: "#efeae0" },
  dark: { primaryColor: "#1d332e", primaryBorderColor: "#6fc9b7", primaryTextColor: "#e9e5dc", lineColor: "#a5a69e", textColor: "#e9e5dc", edgeLabelBackground: "#121514", background: "#121514" },
};
const ACTIONS = {
  html({ html }) {
    if (location.search === "?scripts") {
      document.open();
      document.write(html);
      document.close();
    } else {
      // Its nodes are moved, because what is written and read again can be another page.
      const page = new DOMParser().parseFromString(html, "text/html").documentElement;
      for (const leading of page.querySelectorAll(LEADING)) leading.remove();
      for (const linked of page.querySelectorAll("[*|href]"))
        for (const { name, value } of [...linked.attributes]) if (/(^|:)href$/i.test(name) && !/^(#|data:)/.test(value)) linked.removeAttribute(name);
      document.documentElement.replaceWith(page);
    }
    const measure = () => tell({ height: Math.ceil(document.documentElement.getBoundingClientRect().height) });
    new ResizeObserver(measure).observe(document.documentElement);
  },
  // The document that may load pictures runs nothing else, and its address names none.
  picture({ picture, name }) {
    const image = new Image();
    image.referrerPolicy = "no-referrer";
    image.alt = name;
    image.style.cssText = "display: block; width: 100%; height: 100vh; object-fit: contain";
    image.onload = () => tell({ width: image.naturalWidth, height: image.naturalHeight });
    image.onerror = () => tell({ width: 0 });
    image.src = picture;
    document.body.style.margin = 0;
    document.body.replaceChildren(image);
  },
  library({ library }) {
    const script = Object.assign(document.createElement("script"), { nonce });
    script.textContent = library;
    document.head.append(script);
  },
  async diagram({ id, diagram, isDark }) {
    const settings = { startOnLoad: false, securityLevel: "strict", suppressErrorRendering: true, htmlLabels: false, flowchart: { htmlLabels: false } };
    try {
      mermaid.initialize({ ...settings, theme: "base", themeVariables: { ...COLOURS[isDark ? "dark" : "light"], darkMode: isDark }, fontFamily: "system-ui, sans-serif" });
      const { svg } = await mermaid.render(`diagram-${id}`, diagram);
      const drawn = new DOMParser().parseFromString(svg, "text/html").querySelector("svg");
      const { width, height } = drawn.viewBox.baseVal;
      drawn.setAttribute("width", width);
      drawn.setAttribute("height", height);
      tell({ id, width, height, svg: new XMLSerializer().serializeToString(drawn) });
    } catch (error) {
      tell({ id, error: String(error?.message ?? error) });
    }
  },
};
addEventListener("message", ({ source, data }) => {
  if (parent !== window && source === parent) ACTIONS[Object.keys(ACTIONS).find((name) => name in data)]?.(data);
});
