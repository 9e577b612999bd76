import { encode } from "gpt-tokenizer/encoding/o200k_base"
import { readAnswers, TASKS } from "../support/answers.ts"
import { type Case, collector } from "../support/case.ts"
import { type Bench, native, superagents, withBenches } from "../support/contender.ts"
import { atMostPlus } from "../support/rows.ts"

/** A parent that wants five short answers: how often its model is asked, and how much it is made to read. */
export const answersCase: Case = async ({ runs, short, built, progress }) => {
  const found = collector()
  const bare = collector()
  for (let run = 1; run <= runs; run++) {
    const contenders = [
      native,
      superagents(built.folder),
      ...(short ? [] : [superagents(built.folder, { notifyAnswerChars: 0 })]),
    ]
    await withBenches(contenders, async (benches) => {
      for (const [index, bench] of benches.entries()) {
        progress(`answers: run ${run} of ${runs}, ${index < 2 ? bench.contender.name : "plugin, answers fetched"}`)
        const { requests, tokens } = await measure(bench)
        const into = index < 2 ? found : bare
        into.add("requests", bench.contender.name, requests)
        into.add("tokens", bench.contender.name, tokens)
      }
    })
  }
  const title = `${TASKS} short answers that come together`
  const against = "the plugin, answers fetched (`notifyAnswerChars` 0)"
  const rows = (["requests", "tokens"] as const).flatMap((unit) => {
    const figure = `${title}: ${unit === "requests" ? "the parent's turns" : "tokens that its model reads"}`
    const { plugin } = found.of(unit)
    const goal = unit === "requests" ? { goal: atMostPlus(1, "requests") } : {}
    return [
      { case: "answers", figure, unit, ...found.of(unit), ...goal },
      ...(short ? [] : [{ case: "answers", figure, unit, against, native: bare.of(unit).plugin, plugin }]),
    ]
  })
  return rows
}

async function measure(bench: Bench) {
  const requests = await readAnswers(bench)
  const tokens = requests.map(({ body }) => encode(JSON.stringify([body.messages, body.tools])).length)
  return { requests: requests.length, tokens: tokens.reduce((sum, each) => sum + each, 0) }
}
