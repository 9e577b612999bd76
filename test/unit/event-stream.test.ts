import { expect, test } from "vitest"
import { eventReader } from "../../src/lib/http.ts"

test("the event reader skips an event that is too long, however it is cut, and reads the next", () => {
  const long = `data: ${"x".repeat(50)}\n\n`
  for (let cut = 1; cut < long.length; cut++) {
    const read = eventReader(10)
    const pieces = [long.slice(0, cut), long.slice(cut), "data: next\n\n"]
    const found = pieces.flatMap(read).map(({ data }) => data)
    expect(found.at(-1), `cut at ${cut}`).toBe("next")
    // With no more than its beginning held back, it came whole.
    expect(found).toHaveLength(cut <= 10 ? 2 : 1)
  }
})
