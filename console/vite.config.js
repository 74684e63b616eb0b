// Builds the pages into the package, with a record of what they were built from: tests compare it without Node.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vite'

const here = dirname(fileURLToPath(import.meta.url))
const out = join(here, '..', 'gatepost', 'console')
const PAGES = ['index.html', 'operator.html']
const SOURCES = [...PAGES, 'package.json', 'package-lock.json', 'tsconfig.json', 'vite.config.js', 'src']
const SHIPPED = ['preact', 'uplot']

const digest = (bytes) => createHash('sha256').update(bytes).digest('hex')

function files(path) {
  const found = readdirSync(path, { withFileTypes: true, recursive: true }).filter((each) => each.isFile())
  return found.map((each) => join(each.parentPath, each.name))
}

/** One line for each source, sorted by name: its name and the hash of what is in it. */
function sources() {
  const named = SOURCES.flatMap((name) => (name === 'src' ? files(join(here, name)) : [join(here, name)]))
  const lines = named.map((path) => `${relative(here, path).split(sep).join('/')} ${digest(readFileSync(path))}\n`)
  return digest(lines.sort().join(''))
}

function licenses() {
  return SHIPPED.map((name) => {
    const text = readFileSync(join(here, 'node_modules', name, 'LICENSE'), 'utf8').trim()
    return `${name}\n\n${text}\n`
  }).join('\n----\n\n')
}

const record = {
  name: 'record-of-the-build',
  closeBundle() {
    writeFileSync(join(out, 'licenses.txt'), licenses())
    const built = files(out).map((path) => [relative(out, path).split(sep).join('/'), digest(readFileSync(path))])
    const told = { sources: sources(), files: Object.fromEntries(built.sort()) }
    writeFileSync(join(out, 'built.json'), `${JSON.stringify(told, null, 2)}\n`)
  },
}

export default defineConfig({
  root: here,
  base: './',
  publicDir: false,
  build: {
    outDir: out,
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: ['chrome123', 'firefox128', 'safari17.5'],
    reportCompressedSize: true,
    rolldownOptions: { input: PAGES.map((page) => join(here, page)) },
  },
  plugins: [record],
})
