/** Keeps the newest words in view while the reader is at the bottom, and stays out of the way when they are not. */

const NEAR_PX = 64;

export class Following {
  #isFollowing = true;
  #lastTop = window.scrollY;

  constructor(thread, jumpButton) {
    this.thread = thread;
    this.jumpButton = jumpButton;
    addEventListener("scroll", () => this.#onScroll(), { passive: true });
    addEventListener("resize", () => this.grown(), { passive: true });
    jumpButton.addEventListener("click", () => this.jump());
    this.#isFollowing = isAtBottom();
    this.#showButton();
  }

  /** The thread has grown. */
  grown() {
    if (this.#isFollowing) window.scrollTo(0, document.documentElement.scrollHeight);
    this.#showButton();
  }

  jump() {
    this.#isFollowing = true;
    this.grown();
  }

  /** Growing moves nothing, so only a reader who scrolls up stops it. */
  #onScroll() {
    if (isAtBottom()) this.#isFollowing = true;
    else if (window.scrollY < this.#lastTop) this.#isFollowing = false;
    this.#lastTop = window.scrollY;
    this.#showButton();
  }

  #showButton() {
    this.jumpButton.hidden = isAtBottom() || this.thread.childElementCount === 0;
  }
}

function isAtBottom() {
  return document.documentElement.scrollHeight - window.innerHeight - window.scrollY < NEAR_PX;
}
