// Is loaded before the program of each Node process of the tests, with --import. The
// packages are used as they are published.
//
// It binds every server to the loopback interface, because the packages bind to all. It
// writes what the tests need to know to files that the environment names: the ID of the
// process (PID_FILE), the port of the first server (PORT_FILE), and a mark for each report
// of progress on standard output (PROGRESS_FILE).
import { appendFileSync, renameSync, writeFileSync } from 'node:fs'
import * as fs from 'node:fs'
import { register } from 'node:module'
import { Server } from 'node:net'

function write(file, text) {
  writeFileSync(file + '.new', text)
  renameSync(file + '.new', file)
}

const { PID_FILE, PORT_FILE, PROGRESS_FILE } = process.env
if (PID_FILE) write(PID_FILE, String(process.pid))

// Every way to listen ends in _listen2. Without a host its address is null. listen with a
// host would bind later, and the conformance suite reads its port at once.
const bind = Server.prototype._listen2
Server.prototype._listen2 = function (address, port, type, ...rest) {
  if (address === null && port >= 0) [address, type] = ['127.0.0.1', 4]
  if (PORT_FILE) this.once('listening', () => write(PORT_FILE, String(this.address().port)))
  return bind.call(this, address, port, type, ...rest)
}

if (PROGRESS_FILE) {
  const send = process.stdout.write
  process.stdout.write = function (chunk, ...rest) {
    if (String(chunk).includes('"notifications/progress"')) appendFileSync(PROGRESS_FILE, '.')
    return send.call(this, chunk, ...rest)
  }
}

// The conformance suite imports fs.globSync, which Node has from version 22 on, for a
// command that the tests do not use.
if (!fs.globSync) register('./globsync.mjs', import.meta.url)
