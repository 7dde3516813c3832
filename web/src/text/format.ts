// Numbers and times as a person reads them. Pure; the caller says what time it is.

/** A span as `0:08`, `12:40`, `3:05:00`, then `2 d`. Never negative. */
export function span(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s >= 48 * 3600) return `${Math.floor(s / 86_400)} d`;
  const two = (n: number): string => String(n).padStart(2, "0");
  const h = Math.floor(s / 3600);
  return h > 0 ? `${h}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}` : `${Math.floor(s / 60)}:${two(s % 60)}`;
}

/** A span in words for a sentence: `8 s`, `4 min`, `3 h`, `2 d`. */
export function rough(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 100) return `${s} s`;
  if (s < 100 * 60) return `${Math.round(s / 60)} min`;
  return s < 48 * 3600 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} d`;
}

/** A short duration of a step: `812 ms`, `4.2 s`, `3:10`. */
export function took(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : span(ms);
}

/** A time of day; with `now`, a time on another day also says which day. */
export function clock(iso: string, now?: number): string {
  const date = new Date(iso);
  const time = date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  if (now === undefined || date.toDateString() === new Date(now).toDateString()) return time;
  return `${date.toLocaleDateString(undefined, { day: "numeric", month: "short" })} ${time}`;
}

/** Money that is known. An unknown price is null and shows nothing; it is never shown as zero. */
export function money(cost: { currency: string; amount: string | null; estimated?: boolean } | null | undefined): string | null {
  if (!cost || cost.amount === null || cost.amount === undefined) return null;
  const value = Number(cost.amount);
  if (!Number.isFinite(value)) return null;
  const digits = value === 0 ? 2 : value < 0.01 ? 4 : value < 1 ? 3 : 2;
  const sign = cost.currency === "USD" ? "$" : `${cost.currency} `;
  return `${sign}${value.toFixed(digits)}`;
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${n} ${n === 1 ? one : many}`;
}

export function tokens(n: number): string {
  return n < 1000 ? count(n, "token") : `${shortTokens(n)} tokens`;
}

/** A count of tokens as `812`, `18.2k`, `1.3M`. */
export function shortTokens(n: number): string {
  if (n < 1000) return String(n);
  return n < 1_000_000 ? `${(n / 1000).toFixed(1)}k` : `${(n / 1_000_000).toFixed(1)}M`;
}

/** `1st`, `2nd`, `3rd`, `11th`. */
export function ordinal(n: number): string {
  const teen = n % 100 > 10 && n % 100 < 14;
  return `${n}${(teen ? undefined : { 1: "st", 2: "nd", 3: "rd" }[n % 10]) ?? "th"}`;
}

/** The heading under which a day is listed: Today, Yesterday, a weekday of this week, else the date. */
export function day(iso: string, now: number): string {
  const date = new Date(iso);
  const today = new Date(now);
  const midnight = (d: Date): number => new Date(d.getFullYear(), d.getMonth(), d.getDate()).getTime();
  const days = Math.round((midnight(today) - midnight(date)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return date.toLocaleDateString(undefined, { weekday: "long" });
  const sameYear = date.getFullYear() === today.getFullYear();
  return date.toLocaleDateString(undefined, { day: "numeric", month: "long", ...(sameYear ? {} : { year: "numeric" }) });
}

/** An id shortened for the eye; the whole one is in the title. */
export function shortId(id: string): string {
  return id.length > 12 ? `${id.slice(0, 4)}…${id.slice(-4)}` : id;
}
