/** On a narrow screen the row of tabs is longer than wide: the present one is brought into sight. */

const present = document.querySelector(".tabs [aria-current]");
if (present) present.parentElement.scrollLeft = present.offsetLeft - present.parentElement.offsetLeft - present.parentElement.clientWidth / 2 + present.offsetWidth / 2;
