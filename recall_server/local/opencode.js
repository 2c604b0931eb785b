// Written by `recall install opencode`, which also removes it: `--remove`.
//
// At each prompt it gives the model what is remembered, and stores the turn when it has ended, by
// `recall hook`. A memory must not stop an agent: whatever fails here, opencode goes on.
import { spawn } from "node:child_process"

const HOOK = ["recall", "hook"]
const OPTIONS = []
const WITHIN_MS = 10000

// Run `recall hook EVENT`, and return what it has for the model.
function hook(event, given) {
  return new Promise((resolve) => {
    try {
      const [command, ...words] = [...HOOK, event, ...OPTIONS]
      const child = spawn(command, words, { stdio: ["pipe", "pipe", "ignore"], timeout: WITHIN_MS })
      let said = ""
      child.stdout.on("data", (part) => (said += part))
      child.stdin.on("error", () => {})
      child.on("error", () => resolve(""))
      child.on("close", () => {
        try {
          resolve(JSON.parse(said).hookSpecificOutput.additionalContext)
        } catch {
          resolve("")
        }
      })
      child.stdin.end(JSON.stringify(given))
    } catch {
      resolve("")
    }
  })
}

// The words of a message, without what the host has added to it.
function words(parts) {
  const said = parts.filter((part) => part.type === "text" && !part.synthetic && !part.ignored)
  return said.map((part) => part.text).join("\n")
}

// The current turn of each session.
class Turns {
  constructor(directory) {
    this.directory = directory
    this.turns = new Map()
  }

  async begin(session, prompt) {
    const before = this.turns.get(session)
    if (!prompt || before?.prompt === prompt) return
    const given = { session_id: session, cwd: this.directory }
    const [latest, found] = await Promise.all([
      before?.latest ?? hook("session-start", given),
      hook("user-prompt-submit", { ...given, prompt }),
    ])
    const timestamp = new Date().toISOString()
    this.turns.set(session, { prompt, timestamp, latest, found, answer: [] })
  }

  remembered(session) {
    const turn = this.turns.get(session)
    return [turn?.latest, turn?.found].filter(Boolean)
  }

  answered(session, text) {
    this.turns.get(session)?.answer.push(text)
  }

  async end(session) {
    const turn = this.turns.get(session)
    if (!turn || turn.ended) return
    turn.ended = true
    await hook("stop", {
      session_id: session,
      cwd: this.directory,
      timestamp: turn.timestamp,
      prompt: turn.prompt,
      prompt_response: turn.answer.join("\n"),
    })
  }
}

// opencode 1.18.29 and later load a plugin of this form.
async function server({ client, directory }) {
  const turns = new Turns(directory)

  // The session of a subagent is not a conversation with a person.
  async function answer(session) {
    const { data: about } = await client.session.get({ path: { id: session } })
    if (about?.parentID) return false
    const { data } = await client.session.messages({ path: { id: session } })
    const asked = (data ?? []).findLastIndex((one) => one.info.role === "user")
    for (const one of (data ?? []).slice(asked + 1)) turns.answered(session, words(one.parts))
    return true
  }

  return {
    "chat.message": async ({ sessionID }, { parts }) => turns.begin(sessionID, words(parts)),
    "experimental.chat.system.transform": async ({ sessionID }, { system }) => {
      system.push(...turns.remembered(sessionID))
    },
    event: async ({ event }) => {
      if (event.type !== "session.idle") return
      const session = event.properties.sessionID
      try {
        if (await answer(session)) await turns.end(session)
      } catch {}
    },
  }
}

export default { id: "recall", server }
