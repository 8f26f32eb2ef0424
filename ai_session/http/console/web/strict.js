// Loaded before xterm.js: lets the style elements and attributes that it writes pass a content security policy without
// 'unsafe-inline'.
const nonce = document.documentElement.dataset.nonce;
delete document.documentElement.dataset.nonce;

const create = Document.prototype.createElement;
Document.prototype.createElement = function (name, options) {
  const element = create.call(this, name, options);
  if (element.localName === 'style') element.nonce = nonce;
  return element;
};

const set = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
  // Colours of 24 bits and letter spacing come as a style attribute; what goes through the CSSOM the policy allows.
  if (name === 'style' && this.style) this.style.cssText = value;
  else set.call(this, name, value);
};
