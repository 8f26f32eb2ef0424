// agentwire/visible.py for texts that come to the page from elsewhere: every character is seen, or stands there as an escape.
const IGNORABLE = [[0xAD, 0xAD], [0x34F, 0x34F], [0x61C, 0x61C], [0x115F, 0x1160], [0x17B4, 0x17B5], [0x180B, 0x180F], [0x200B, 0x200F], [0x202A, 0x202E], [0x2060, 0x206F],
  [0x3164, 0x3164], [0xFE00, 0xFE0F], [0xFEFF, 0xFEFF], [0xFFA0, 0xFFA0], [0xFFF0, 0xFFF8], [0x1BCA0, 0x1BCA3], [0x1D173, 0x1D17A], [0xE0000, 0xE0FFF]];
const BLANK = new Set([0x2800, 0xFFFC, 0x13441, 0x13442, 0x16FE4, 0x1D159]), MOST_MARKS = 4, TAB = 8;

const showsNothing = code => BLANK.has(code) || IGNORABLE.some(([first, last]) => first <= code && code <= last);

function escaped(char) {
  const code = char.codePointAt(0), named = { '\t': '\\t', '\n': '\\n', '\r': '\\r' }[char], hex = code.toString(16);
  return named ?? (code < 0x100 ? `\\x${hex.padStart(2, '0')}` : code < 0x10000 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`);
}

// Whether a mark is part of a letter: both make one character together, or the letter's writing has such marks.
function belongs(letter, mark) {
  if (!letter.length || letter.length > MOST_MARKS || /\p{Me}/u.test(mark)) return false;
  return letter[0] > '\x7f' || [...(letter.join('') + mark).normalize('NFC')].length === 1;
}

export function visible(text, lines = false) {
  let shown = '', letter = [];
  for (const char of text) {
    const nothing = showsNothing(char.codePointAt(0));
    if (/[\p{Mn}\p{Me}]/u.test(char) && !nothing) {
      letter = belongs(letter, char) ? [...letter, char] : [];
      shown += letter.length ? char : escaped(char);
    } else {
      letter = /\p{L}/u.test(char) ? [char] : [];
      shown += (char === ' ' || !(/[\p{C}\p{Z}]/u.test(char) || nothing)) || (lines && char === '\n') ? char : escaped(char);
    }
  }
  return shown;
}

// What a program printed, with its tabs as blanks.
export const printed = text => visible(text.split('\n').map(line => {
  let column = 0;
  return line.replace(/[^\t]+|\t/g, part => {
    const found = part === '\t' ? ' '.repeat(TAB - column % TAB) : part;
    column += [...found].length;
    return found;
  });
}).join('\n'), true);
