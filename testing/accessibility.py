"""Looks at a page as axe does, in both colours, on a desktop and on a phone."""

from typing import TYPE_CHECKING, Any

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page

# WCAG 2.2 AA and axe's own good practice. With `preload` it adds styles, which a Content-Security-Policy refuses.
EVERYTHING: dict[str, Any] = {
    "resultTypes": ["violations"],
    "preload": False,
    "rules": {"target-size": {"enabled": True}},
}
WCAG = {**EVERYTHING, "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
# What a colour may change, once the rest is known: two thirds of the time of all rules.
COLOURS = ["color-contrast", "link-in-text-block"]
OF_COLOURS = {"resultTypes": ["violations"], "preload": False, "runOnly": COLOURS}
NOT_OF_COLOURS = {**EVERYTHING, "rules": {**EVERYTHING["rules"], **{rule: {"enabled": False} for rule in COLOURS}}}
# Width, colours, and the rules for the whole page. 320 pixels are a small phone, and a desktop at 400 % (WCAG 1.4.10).
LOOKS: list[tuple[int, str, Any]] = [
    (1280, "light", EVERYTHING),
    (1280, "dark", OF_COLOURS),
    (320, "dark", NOT_OF_COLOURS),
    (320, "light", None),
]
AT_A_DESK: list[tuple[int, str, Any]] = [(1280, "light", WCAG), (1280, "dark", OF_COLOURS)]
# What is needed on each page: axe, and a style without which colours are still on their way from one look to the other.
AXE = f"""{Axe().axe_script};
  const still = new CSSStyleSheet();
  still.replaceSync("* {{ transition: none !important }}");
  document.adoptedStyleSheets = [still];"""
# The widgets of others: Swagger UI, and the question marks in Django's lists of permissions.
# On a phone the colours of what a desk does not show, or shows in others, are left to look at.
FOUND = """async ([options, ofColours, scheme, isAtADesk, isForPhones]) => {
  const exclude = [".swagger-ui", ".help-tooltip"];
  const violations = options ? (await axe.run({ exclude }, options)).violations : [];
  const lookOf = (element) => {
    const { color, backgroundColor, backgroundImage, opacity } = getComputedStyle(element);
    return [color, backgroundColor, backgroundImage, opacity].join();
  };
  const isShown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const shown = [...document.querySelectorAll("body, body *")].filter(isShown);
  const looks = new Map(shown.map((element) => [element, lookOf(element)]));
  if (isAtADesk) {
    window.looksAtADesk = { ...window.looksAtADesk, [scheme]: looks };
  } else {
    const isNew = (element) => looks.has(element) && looks.get(element) !== window.looksAtADesk[scheme].get(element);
    const include = shown.filter((element) => isNew(element) && !isNew(element.parentElement));
    if (include.length) violations.push(...(await axe.run({ include, exclude }, ofColours)).violations);
  }
  const sideways = [];
  if (isForPhones) {
    const root = document.documentElement;
    const direction = root.dir;
    for (root.dir of ["ltr", "rtl"]) if (root.scrollWidth > innerWidth) sideways.push(`scrolls sideways, ${root.dir}`);
    root.dir = direction;
  }
  return sideways.concat(violations.flatMap(({ id, nodes }) =>
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
    for width, colours, options in AT_A_DESK if is_admins else LOOKS:
        page.emulate_media(color_scheme=colours)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 900})
        for each in page.evaluate(FOUND, [options, OF_COLOURS, colours, width > 320, not is_admins]):
            wrong.setdefault(each, f"{width} {colours}")
    return wrong
