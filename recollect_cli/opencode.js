// Written by `recollect install opencode`: gives each session its context, and appends its turns.
import { spawn } from "node:child_process";

const RECOLLECT = COMMAND;
const LONGEST_MS = 2000;

function call(event, payload) {
  return new Promise((resolve) => {
    try {
      const child = spawn(RECOLLECT[0], [...RECOLLECT.slice(1), "hook", "opencode", event]);
      const timer = setTimeout(() => { child.kill(); resolve(""); }, LONGEST_MS);
      let output = "";
      child.on("error", () => resolve(""));
      child.stdin.on("error", () => {});
      child.stdout.on("data", (data) => (output += data));
      child.on("close", () => {
        clearTimeout(timer);
        try { resolve(JSON.parse(output).context || ""); } catch { resolve(""); }
      });
      child.stdin.end(JSON.stringify(payload));
    } catch { resolve(""); }
  });
}

const textOf = (parts) => parts.filter((each) => each.type === "text" && !each.synthetic && !each.ignored)
  .map((each) => each.text).join("\n\n");

export const Recollect = async ({ client, directory }) => {
  const known = new Set();
  const children = new Set();
  async function turnsOf(session) {
    const found = await client.session.messages({ path: { id: session } });
    const turns = [];
    for (const { info, parts } of found.data ?? []) {
      if (info.role === "user") {
        turns.push({ uuid: info.id, parent: turns.at(-1)?.uuid, saidAt: new Date(info.time.created).toISOString(),
          user: textOf(parts), answer: "", tools: [] });
        continue;
      }
      const turn = turns.find((each) => each.uuid === info.parentID);
      if (!turn || info.summary) continue;
      turn.model = info.modelID;
      turn.answer = [turn.answer, textOf(parts)].filter(Boolean).join("\n\n");
      turn.tools.push(...parts.filter((each) => each.type === "tool").map((each) => each.tool));
    }
    return turns.filter((each) => each.user.trim());
  }
  return {
    "chat.message": async ({ sessionID }, output) => {
      if (children.has(sessionID)) return;
      const about = { session_id: sessionID, cwd: directory, prompt: textOf(output.parts) };
      const calls = [call("prompt", about)];
      if (!known.has(sessionID)) calls.unshift(call("session", about));
      known.add(sessionID);
      const text = (await Promise.all(calls)).filter(Boolean).join("\n\n");
      const last = output.parts.at(-1);
      if (text && last) output.parts.push({ ...{ id: `${last.id}r`, sessionID, messageID: last.messageID },
        type: "text", text, synthetic: true });
    },
    event: async ({ event }) => {
      try {
        if (event.type === "session.created" && event.properties.info?.parentID) children.add(event.properties.info.id);
        if (event.type === "session.compacted") known.delete(event.properties.sessionID);
        if (event.type !== "session.idle" || children.has(event.properties.sessionID)) return;
        const session = event.properties.sessionID;
        await call("turns", { session_id: session, cwd: directory, turns: (await turnsOf(session)).slice(-5) });
      } catch {}
    },
  };
};
