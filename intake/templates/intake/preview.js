// The page of a chat puts this document into a sandboxed frame and sends it what to show (static/intake/previews.js).
// Scripts inline, because a script of an address would be a way to reach the server.
const tell = (message) => parent.postMessage(message, "*");
const ACTIONS = {
  html({ html }) {
    // Connections that a policy does not stop in every browser.
    for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "WebTransport"]) delete globalThis[name];
    document.open();
    document.write(html);
    document.close();
    const measure = () => tell({ height: Math.ceil(document.documentElement.getBoundingClientRect().height) });
    new ResizeObserver(measure).observe(document.documentElement);
  },
  library({ library }) {
    const script = document.createElement("script");
    script.textContent = library;
    document.head.append(script);
  },
  async diagram({ id, diagram, isDark }) {
    const settings = { startOnLoad: false, securityLevel: "strict", suppressErrorRendering: true, htmlLabels: false, flowchart: { htmlLabels: false } };
    try {
      mermaid.initialize({ ...settings, theme: isDark ? "dark" : "default", fontFamily: "system-ui, sans-serif" });
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
