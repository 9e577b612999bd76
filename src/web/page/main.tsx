import { render } from "solid-js/web"
import { useToken } from "./api.ts"
import { App } from "./app.tsx"
import { connect } from "./connection.ts"
import { tokenIn } from "./route.ts"
import { link, setLink, take, tick } from "./state.ts"

const TICK_MS = 1000
const KEPT = "superagents.token"
const NO_KEY =
  "This page opens by a link that holds its key: type /board in OpenCode's terminal. With opencode serve, its log names the file that has it."

/** The key from the address, which is then wiped from it, or the one that this tab has kept. */
function takeToken(): string {
  const given = tokenIn(location.hash)
  if (given === undefined) return sessionStorage.getItem(KEPT) ?? ""
  sessionStorage.setItem(KEPT, given)
  history.replaceState(null, "", location.pathname)
  return given
}

let connection: ReturnType<typeof connect> | undefined
/** A browser has six connections to a server, for all tabs: those that nobody sees leave theirs to the one that is. */
const tabs = new BroadcastChannel("superagents")
let left = false

function begin(): void {
  connection?.end()
  left = false
  const token = takeToken()
  useToken(token)
  if (token === "") return void setLink({ state: "refused", message: NO_KEY })
  setLink({ state: "loading" })
  const heard = {
    event: take,
    lost: () => {
      const before = link()
      if (before.state !== "lost") setLink({ state: "lost", since: Date.now() })
    },
    refused(message: string) {
      sessionStorage.removeItem(KEPT)
      setLink({ state: "refused", message })
    },
  }
  const after = (ms: number, run: () => void) => {
    const timer = setTimeout(run, ms)
    return () => clearTimeout(timer)
  }
  connection = connect(token, heard, { after, fetch: (url, init) => fetch(url, init) })
}

const hasten = () => {
  if (link().state === "lost") connection?.again()
}

tabs.onmessage = () => {
  if (!document.hidden || link().state === "refused") return
  connection?.end()
  left = true
}

const seen = () => {
  if (document.hidden) return
  tabs.postMessage("seen")
  if (left) begin()
  else hasten()
}

addEventListener("hashchange", () => {
  if (tokenIn(location.hash) !== undefined) begin()
})
addEventListener("online", hasten)
document.addEventListener("visibilitychange", seen)
setInterval(() => {
  if (!document.hidden) tick()
}, TICK_MS)

tabs.postMessage("seen")
begin()
const root = document.getElementById("root")
if (root) render(() => <App />, root)
