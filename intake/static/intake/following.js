/** Keeps the newest words in view while the reader is at the bottom, and stays out of the way when they are not. */

const NEAR_PX = 64;
// Of a page that is zoomed, the bottom may be a fraction away.
const AT_PX = 2;
const UPWARD_KEYS = new Set(["ArrowUp", "PageUp", "Home"]);
// A finger that rests moves a little.
const TOUCH_PX = 4;

export class Following {
  #isFollowing = true;
  #lastTop = window.scrollY;
  #touchedAt = 0;

  constructor(thread, jumpButton) {
    this.thread = thread;
    this.jumpButton = jumpButton;
    addEventListener("scroll", () => this.#onScroll(), { passive: true });
    addEventListener("resize", () => this.grown(), { passive: true });
    this.#listenForUpwardIntent();
    jumpButton.addEventListener("click", () => this.jump());
    this.#isFollowing = bottomIsWithin(NEAR_PX);
    this.#showButton();
  }

  /** The thread has grown. */
  grown() {
    if (this.#isFollowing) {
      window.scrollTo(0, document.documentElement.scrollHeight);
      // The scroll event of this comes later, and is no reader's.
      this.#lastTop = window.scrollY;
    }
    this.#showButton();
  }

  jump() {
    this.#isFollowing = true;
    this.grown();
  }

  /** What a hand does comes before the page moves, and may move it by less than the next words do. */
  #listenForUpwardIntent() {
    const leave = () => (this.#isFollowing = false);
    addEventListener("wheel", (event) => event.deltaY < 0 && leave(), { passive: true });
    addEventListener("touchstart", (event) => (this.#touchedAt = event.touches[0].clientY), { passive: true });
    addEventListener("touchmove", (event) => event.touches[0].clientY - this.#touchedAt > TOUCH_PX && leave(), { passive: true });
    addEventListener("keydown", (event) => {
      const isUpward = UPWARD_KEYS.has(event.key) || (event.key === " " && event.shiftKey);
      if (isUpward && !event.target.closest?.("input, textarea, select, [role=menu], [data-sidebar], dialog")) leave();
    });
  }

  /** Growing moves nothing, and a page that became shorter ends at its bottom: the rest is a reader's. */
  #onScroll() {
    const top = window.scrollY;
    if (top < this.#lastTop && !bottomIsWithin(AT_PX)) this.#isFollowing = false;
    else if (top > this.#lastTop && bottomIsWithin(AT_PX)) this.#isFollowing = true;
    this.#lastTop = top;
    this.#showButton();
  }

  #showButton() {
    this.jumpButton.hidden = bottomIsWithin(NEAR_PX) || this.thread.childElementCount === 0;
  }
}

function bottomIsWithin(pixels) {
  return document.documentElement.scrollHeight - window.innerHeight - window.scrollY < pixels;
}
