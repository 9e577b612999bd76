/**
 * Breaches that stand as stories that still fail: a life that broke nothing else is no news. Whoever mends one takes it
 * off here. Empty is how this list is to be.
 */
const KNOWN: readonly RegExp[] = [
  // Issue *True ends*, 1.
  /has ended \((error|cancelled)\) and is asked to go on/,
  /the model of \w+ is asked after its end/,
  // 2.
  /after its user's ESC/,
  // 4, and a word to an agent whose turn ended at a refused question.
  /was told ".*" and never read it/,
  // 5.
  /has not woken the parent/,
  // found.test.ts, in its order.
  /never ended: running|timers? of the (other )?process (is|are) left|thinks that \w+ goes on/,
  /a question of \w+ is still open/,
  /is error and was told as ⊘/,
  /\w+ is still at work/,
  /calls never came back: (its parent tells it a word|a call)|something of the process is still under way/,
  /was told of \d+ runs of \d+/,
]

export const isKnown = (breach: string): boolean => KNOWN.some((known) => known.test(breach))
