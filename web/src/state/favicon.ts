// The page's icon, with a number on it while something needs the person.

let plain: string | null = null;

export function showCount(count: number): void {
  const link = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (!link) return;
  plain ??= link.href;
  link.href = count > 0 ? `data:image/svg+xml,${encodeURIComponent(badge(count))}` : plain;
}

function badge(count: number): string {
  const text = count > 9 ? "9+" : String(count);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="16" cy="16" r="15" fill="#a15c00"/>` +
    `<text x="16" y="22" font-family="system-ui,sans-serif" font-size="${text.length > 1 ? 15 : 18}" font-weight="700" fill="#fff" text-anchor="middle">${text}</text></svg>`
  );
}
