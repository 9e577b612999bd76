import { expect, test } from "vitest"
import { record, recorded, structureOf } from "../../scripts/conversations.ts"

test("docs/conversations.md matches what models are sent today (npm run conversations)", async () => {
  expect(structureOf(recorded())).toBe(structureOf(await record()))
}, 120_000)
