// Runs a job at most once per interval: the first call at once, those that come meanwhile once at its end.
// A job that is still going is never started twice; a call during it runs it once more.

export function throttle(job: () => Promise<void>, intervalMs: number): () => void {
  let last = -Infinity;
  let timer: ReturnType<typeof setTimeout> | null = null;
  let going = false;
  let again = false;
  const run = async (): Promise<void> => {
    timer = null;
    last = performance.now();
    going = true;
    again = false;
    try {
      await job();
    } finally {
      going = false;
      if (again) ask();
    }
  };
  const ask = (): void => {
    if (timer !== null) return;
    if (going) {
      again = true;
      return;
    }
    const wait = last + intervalMs - performance.now();
    if (wait <= 0) void run();
    else timer = setTimeout(() => void run(), wait);
  };
  return ask;
}
