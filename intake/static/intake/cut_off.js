/** What is cut off at its end is told whole where the pointer rests on it. */

export function tellWhatIsCutOff() {
  document.addEventListener("mouseover", ({ target }) => {
    if (target.title && target.title !== target.dataset.whole) return;
    const isCut = target.scrollWidth > target.clientWidth && getComputedStyle(target).textOverflow === "ellipsis";
    if (isCut) target.title = target.dataset.whole = target.textContent.trim();
    else if (target.title) target.removeAttribute("title");
  });
}
