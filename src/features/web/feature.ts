import { z } from "zod"
import type { AppFeature } from "../../app.ts"
import { option, part, projectWins, type ValuesOf } from "../../options/spec.ts"

const LOOPBACK = /^(localhost|::1|127(\.\d{1,3}){3})$/
const ELSEWHERE =
  "it must be a loopback address, since the page is plain HTTP; to open it on another machine, forward its port there: ssh -L 4097:127.0.0.1:4097 <this machine>"

const options = {
  web: part("A page in the browser, with all background tasks. Off unless it is there.", {
    port: option(
      () => z.int().min(0).max(65_535),
      4097,
      "Where the page is served; the next free port where that is taken.",
      projectWins,
    ),
    host: option(
      () => z.string().regex(LOOPBACK, { error: ELSEWHERE }),
      "127.0.0.1",
      "The loopback address to listen at. Another machine gets to the page through a tunnel: ssh -L.",
      projectWins,
    ),
  }),
}

declare module "../../options/options.ts" {
  interface Options extends ValuesOf<typeof options> {}
}

export const web: AppFeature = {
  name: "web",
  options,
  async open(setup) {
    const { web: own } = setup.options
    return own && (await import("./open.ts")).openPage({ ...setup, web: own })
  },
}
