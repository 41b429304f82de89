// Hooks that give the conformance suite a module fs with the name globSync.
const source = `
export * from 'node:fs'
export { default } from 'node:fs'
export function globSync() { throw new Error('fs.globSync needs Node 22') }
`

export async function resolve(specifier, context, next) {
  if (specifier === 'fs' && context.parentURL?.includes('/@modelcontextprotocol/conformance/')) {
    return { url: 'data:text/javascript,' + encodeURIComponent(source), shortCircuit: true }
  }
  return next(specifier, context)
}
