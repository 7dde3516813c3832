// Which request a person is on the way to: named in the list or in the address, shown and focused where its card is drawn.

const HASH = /^#request-([\w-]+)$/;

class Aim {
  request = $state<string | null>(null);

  constructor() {
    if (typeof location === "object") this.request = HASH.exec(location.hash)?.[1] ?? null;
  }

  /** The address of a request's card. */
  href(conversation: string, request: string): string {
    return `/c/${conversation}#request-${request}`;
  }
}

export const aim = new Aim();
