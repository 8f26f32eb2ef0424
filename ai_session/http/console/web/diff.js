// What was changed, as git tells it: each file with its lines.
import { html, Theirs } from './parts.js';

// Only lines of a hunk begin with what says that they came or went.
export function parsed(text) {
  const files = [];
  let inside = false;
  for (const line of text.replace(/\n$/, '').split('\n')) {
    if (line.startsWith('diff ') || !files.length) { files.push([]); inside = false; }
    if (line.startsWith('@@')) inside = true;
    files.at(-1).push({ line, kind: !inside ? 'about' : line.startsWith('@@') ? 'hunk' : line.startsWith('+') ? 'add' : line.startsWith('-') ? 'del' : '' });
  }
  return files;
}

const counted = ({ added, removed }) => added === null || added === undefined ? 'not text' : `+${added} −${removed}`;

export const Diff = ({ found }) => !found.tasks.length ? html`<p class="soft">Nothing was changed in a clone.</p>` : found.tasks.map(task => task.error ? html`<p class="bad"><${Theirs}>${task.task}</${Theirs}>: <bdi>${task.error.message}</bdi></p>`
  : html`<div class="change"><p class="row"><b><${Theirs}>${task.task}</${Theirs}></b><span class="soft">${task.state}</span>${task.ref && html`<code class="faint cut"><${Theirs}>${task.ref}</${Theirs}></code>`}</p>
    <ul class="files">${task.files.map(file => html`<li><code class="cut grow"><${Theirs}>${file.path}</${Theirs}></code><span class="num faint">${counted(file)}</span></li>`)}</ul>
    <pre class="diff" role="group" aria-label=${`Changes of ${task.task}`}>${parsed(task.diff).map(lines => lines.map(({ line, kind }) => html`<span class=${kind}><bdi>${line}</bdi></span>`))}</pre>
    ${task.left_out > 0 && html`<p class="signs">${task.left_out} characters more are not shown here: <code><bdi>${task.whole}</bdi></code></p>`}</div>`);
