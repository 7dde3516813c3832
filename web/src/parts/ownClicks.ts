// Of a double click, the second counts only in the place where the first one fell: when a card or a line goes, the next
// one moves under the pointer, and nobody has decided anything about that. The same holds where a button has made way.

let began: EventTarget | null = null;
addEventListener("click", (event) => { if (event.detail <= 1) began = event.target; }, true);

/** Inside this element no click is heard that goes on one outside of it. Keys are clicks without a count. */
export function ownClicks(node: HTMLElement): void {
  node.addEventListener("click", (event) => {
    if (event.detail <= 1 || node.contains(began as Node | null)) return;
    event.preventDefault();
    event.stopPropagation();
  }, true);
}
