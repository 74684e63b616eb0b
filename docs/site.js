// Search, copy buttons and the menu of the documentation site. The pages work without this file.
'use strict'

const root = document.currentScript.dataset.root
const header = document.querySelector('header')
const navigation = document.getElementById('navigation')

// --- navigation: show the current page in the list, and open the list as a menu where the screen is narrow

const current = navigation.querySelector('[aria-current]')
if (current) navigation.scrollTop = current.offsetTop - navigation.clientHeight / 2

const menu = header.querySelector('.menu')
menu.setAttribute('role', 'button')
menu.setAttribute('aria-expanded', 'false')

function toggleMenu(open) {
  document.body.classList.toggle('menu-open', open)
  menu.setAttribute('aria-expanded', String(open))
  menu.textContent = open ? 'Close' : 'Menu'
  if (open && current) current.scrollIntoView({ block: 'center' })
}

menu.addEventListener('click', (event) => {
  event.preventDefault()
  toggleMenu(!document.body.classList.contains('menu-open'))
})

// --- copy buttons

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  const area = document.createElement('textarea') // a page without TLS on another host has no clipboard
  area.value = text
  document.body.append(area)
  area.select()
  document.execCommand('copy')
  area.remove()
}

for (const block of document.querySelectorAll('main .code')) {
  const button = document.createElement('button')
  button.type = 'button'
  button.className = 'copy'
  button.textContent = 'Copy'
  button.addEventListener('click', async () => {
    try {
      await copy(block.querySelector('code').textContent)
      button.textContent = 'Copied'
    } catch {
      button.textContent = 'Not copied'
    }
    setTimeout(() => { button.textContent = 'Copy' }, 2000)
  })
  block.append(button)
}

// --- search

const MOST_RESULTS = 20
const SNIPPET = 140 // characters of text beside the first match
const form = header.querySelector('.search')
const input = form.querySelector('input')
const panel = form.querySelector('.results')
const status = panel.querySelector('[role=status]')
const list = panel.querySelector('ul')
let index // loaded when the field is first used

function loadIndex() {
  index ??= new Promise((resolve, reject) => {
    const script = document.createElement('script')
    script.src = `${root}/search-index.js`
    script.onload = () => resolve(window.gatepostSearchIndex.flatMap(([url, title, sections]) =>
      sections.map(([anchor, heading, text], number) => ({
        url: number ? `${url}#${anchor}` : url, title, heading, text,
        words: { title: fold(title), heading: fold(heading), text: fold(text) },
        first: number === 0,
      }))))
    script.onerror = () => reject(new Error('The search index could not be loaded.'))
    document.head.append(script)
  })
  return index
}

const fold = (text) => text.toLowerCase()

// A section matches if each word of the query begins a word in it. A match in a heading counts more than one in the text.
function score(section, terms) {
  let total = 0
  for (const term of terms) {
    const points =
      (term.test(section.words.title) ? (section.first ? 30 : 6) : 0) +
      (term.test(section.words.heading) ? 20 : 0) +
      (term.test(section.words.text) ? 2 : 0)
    if (points === 0) return 0
    total += points
  }
  return total
}

function find(sections, query) {
  const words = fold(query).split(/\s+/).filter(Boolean)
  const terms = words.map((word) => new RegExp(`(?<![\\p{L}\\p{N}])${escapePattern(word)}`, 'u'))
  const whole = fold(query).trim()
  return sections
    .map((section) => ({ section, points: score(section, terms) + (section.words.heading === whole ? 50 : 0) }))
    .filter(({ points }) => points > 0)
    .sort((a, b) => b.points - a.points)
    .map(({ section }) => section)
}

const escapePattern = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, (sign) => (sign === '-' ? '-' : `\\${sign}`))

function appendMarked(parent, text, words) {
  const pattern = new RegExp(`(${words.map(escapePattern).join('|')})`, 'giu')
  text.split(pattern).forEach((part, number) => {
    if (number % 2) {
      const mark = document.createElement('mark')
      mark.textContent = part
      parent.append(mark)
    } else {
      parent.append(part)
    }
  })
}

function snippet(section, words) {
  const places = words.map((word) => section.words.text.indexOf(word)).filter((place) => place >= 0)
  const from = Math.max(0, Math.min(...places, section.text.length) - SNIPPET / 3)
  const start = from ? section.text.indexOf(' ', from) + 1 : 0
  return (start ? '… ' : '') + section.text.slice(start, start + SNIPPET) + (section.text.length > start + SNIPPET ? ' …' : '')
}

function resultItem(section, words) {
  const item = document.createElement('li')
  const link = document.createElement('a')
  link.href = `${root}/${section.url}`
  const title = document.createElement('strong')
  appendMarked(title, section.first ? section.title : `${section.title} › ${section.heading}`, words)
  const text = document.createElement('span')
  appendMarked(text, snippet(section, words), words)
  link.append(title, text)
  link.addEventListener('click', close)
  item.append(link)
  return item
}

async function search() {
  const query = input.value
  if (!query.trim()) return close()
  let sections
  try {
    sections = await loadIndex()
  } catch (problem) {
    index = undefined
    status.textContent = problem.message
    panel.hidden = false
    return
  }
  if (query !== input.value) return // another key was pressed meanwhile
  const words = fold(query).split(/\s+/).filter(Boolean)
  const results = find(sections, query)
  const shown = results.slice(0, MOST_RESULTS)
  list.replaceChildren(...shown.map((section) => resultItem(section, words)))
  status.textContent = results.length === 0
    ? 'No results. Try fewer or shorter words.'
    : results.length > shown.length
      ? `The first ${shown.length} of ${results.length} results`
      : `${results.length} ${results.length === 1 ? 'result' : 'results'}`
  panel.hidden = false
  panel.scrollTop = 0
}

function close() {
  panel.hidden = true
}

function moveFocus(step) {
  const links = [...list.querySelectorAll('a')]
  const place = links.indexOf(document.activeElement) + step
  if (place < 0) input.focus()
  else links[Math.min(place, links.length - 1)]?.focus()
}

form.hidden = false
input.addEventListener('input', search)
input.addEventListener('focus', () => loadIndex().catch(() => {}))
input.addEventListener('click', search)
panel.addEventListener('mousedown', (event) => event.preventDefault()) // the field keeps the focus until the click
form.addEventListener('submit', (event) => {
  event.preventDefault()
  if (!panel.hidden) list.querySelector('a')?.click()
})
form.addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
    event.preventDefault()
    moveFocus(event.key === 'ArrowDown' ? 1 : -1)
  } else if (event.key === 'Escape') {
    input.focus()
    close()
  }
})
form.addEventListener('focusout', (event) => { if (!form.contains(event.relatedTarget)) close() })
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') toggleMenu(false)
  const typing = event.target.closest('input, textarea, select, [contenteditable]')
  if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault()
    input.focus()
    input.select()
  }
})
