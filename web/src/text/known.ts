// Looks a word from outside up in a table of ours. A name such as `constructor` is no entry. Pure.

export function known<T>(table: Readonly<Record<string, T>>, word: string | null | undefined): T | undefined {
  return word && Object.hasOwn(table, word) ? table[word] : undefined;
}
