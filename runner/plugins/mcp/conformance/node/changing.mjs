// A server on standard input and output, with the official SDK, whose tools change when
// its tool change is called. It writes a file in the folder MARKS for what it was asked.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js'
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js'
import { z } from 'zod'

const server = new McpServer({ name: 'changing', version: '1.0.0' })
const mark = (name) => writeFileSync(join(process.env.MARKS, name), '')
const text = (text) => ({ content: [{ type: 'text', text }] })

server.registerTool('kept', { description: 'Does not change.' }, async () => text('kept'))

const old = server.registerTool('old', { description: 'Is removed.' }, async () => {
  mark('old')
  return text('old')
})

const count = server.registerTool('count', { description: 'Counts.', inputSchema: { text: z.string() } }, async ({ text: s }) => {
  mark('counted-' + s)
  return text('first ' + s.length)
})

server.registerTool('change', { description: 'Changes the tools.' }, async () => {
  old.remove()
  count.update({ description: 'Counts from the end.', callback: async ({ text: s }) => text('second ' + s.length) })
  server.registerTool('extra', { description: 'Is new.' }, async () => text('extra'))
  return text('changed')
})

server.registerTool('hold', { description: 'Waits until it is cancelled.' }, (extra) => new Promise((resolve) => {
  extra.signal.addEventListener('abort', () => {
    mark('cancelled')
    resolve(text('cancelled'))
  })
  mark('held')
}))

await server.connect(new StdioServerTransport())
