// The page's one ticking clock, by the server's time. It ticks only while something on the page counts seconds.

import { serverNow } from "../wire/api";

class Clock {
  now = $state(serverNow());
  #users = 0;
  #timer: ReturnType<typeof setInterval> | null = null;

  /** Keeps the clock ticking until the returned function is called. */
  hold(): () => void {
    this.now = serverNow();
    if (this.#users++ === 0) this.#timer = setInterval(() => (this.now = serverNow()), 1000);
    return () => {
      if (--this.#users === 0 && this.#timer !== null) clearInterval(this.#timer);
    };
  }
}

export const clock = new Clock();
