// Errors by name. Their codes are the exit codes of the program, and those of JSON-RPC.

export class FencelockError extends Error {
  static code = 70;
  constructor(message, code, data) {
    super(message);
    const { cause: reason, ...known } = data ?? {};
    for (const [name, value] of Object.entries({ ...known, reason })) if (value !== undefined && value !== null) this[name] = value;
    this.name = new.target.name;
    this.code = code ?? new.target.code;
  }
}

export class LockBusy extends FencelockError { static code = 75; }
export class LockLost extends FencelockError { static code = 76; }
export class Unreachable extends FencelockError { static code = 69; }
export class UsageError extends FencelockError { static code = 64; }
export class LimitReached extends FencelockError { static code = -32001; }

/** By code. -32602: parameters of the wrong type, or unknown ones. */
const NAMED = new Map([[-32602, UsageError], ...[LockBusy, LockLost, Unreachable, UsageError, LimitReached].map((named) => [named.code, named])]);

/** The error of a reply. */
export function ofReply({ code, message, data }) {
  const advice = data?.advice;
  const text = advice && !message.includes(advice) ? `${message}: ${advice}` : message;
  return new (NAMED.get(code) ?? FencelockError)(text, code, data);
}
