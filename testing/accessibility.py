"""Looks at a page as axe does, in both colours, on a desktop and on a phone."""

from typing import TYPE_CHECKING, Any

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Width, colours, and whether anything but colours differs from the look before.
# 320 pixels are a small phone, and a desktop at 400 % (WCAG 1.4.10).
LOOKS = [(1280, "light", True), (1280, "dark", False), (320, "dark", True), (320, "light", False)]
AT_A_DESK = LOOKS[:2]
# WCAG 2.2 AA and axe's own good practice. With `preload` it adds styles, which a Content-Security-Policy refuses.
EVERYTHING: dict[str, Any] = {
    "resultTypes": ["violations"],
    "preload": False,
    "rules": {"target-size": {"enabled": True}},
}
WCAG = {**EVERYTHING, "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
# What a colour may change, once the rest is known.
OF_COLOURS = {"resultTypes": ["violations"], "preload": False, "runOnly": ["color-contrast", "link-in-text-block"]}
# What is needed on each page: axe, and a style without which colours are still on their way from one look to the other.
AXE = f"""{Axe().axe_script};
  const still = new CSSStyleSheet();
  still.replaceSync("* {{ transition: none !important }}");
  document.adoptedStyleSheets = [still];"""
# The widgets of others: Swagger UI, and the question marks in Django's lists of permissions.
FOUND = """async ([options, isForPhones]) => {
  const found = await axe.run({ exclude: [".swagger-ui", ".help-tooltip"] }, options);
  const sideways = [];
  if (isForPhones) {
    const root = document.documentElement;
    const direction = root.dir;
    for (root.dir of ["ltr", "rtl"]) if (root.scrollWidth > innerWidth) sideways.push(`scrolls sideways, ${root.dir}`);
    root.dir = direction;
  }
  return sideways.concat(found.violations.flatMap(({ id, nodes }) =>
    nodes.map((node) => `${id}: ${node.target} ${(node.any[0] ?? node.all[0] ?? node.none[0])?.message ?? ""}`)));
}"""


def bring_axe(page: "Page") -> None:
    """Every document that this page opens from now on has axe in it."""
    page.add_init_script(AXE)


def look_at(page: "Page", *, is_admins: bool = False) -> dict[str, str]:
    """What is wrong with it, each with the look in which it was seen first.

    Django's admin is looked at as it is used, at a desk, for what WCAG asks.
    """
    wrong: dict[str, str] = {}
    for width, colours, is_new in AT_A_DESK if is_admins else LOOKS:
        page.emulate_media(color_scheme=colours)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 900})
        options = OF_COLOURS if not is_new else WCAG if is_admins else EVERYTHING
        for each in page.evaluate(FOUND, [options, not is_admins]):
            wrong.setdefault(each, f"{width} {colours}")
    return wrong
