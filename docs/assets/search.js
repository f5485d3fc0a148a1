/* People search for options as they type them: --slo, -e. The theme's index reads a dash before a word as "without", and knows no single letters. */
(() => {
  const LONG = {}; // what a letter stands for; filled when the pages are written
  const send = Worker.prototype.postMessage;
  const words = (text) => text
    .replace(/(^|\s)(-\w)(?=\W*(\s|$))/g, (_, before, letter) => before + (LONG[letter] ?? letter))
    .replace(/(^|\s)-+(?=\w)/g, "$1");
  Worker.prototype.postMessage = function (message, ...rest) {
    const asked = message && typeof message.data === "string" && typeof message.type === "number";
    return send.call(this, asked ? { ...message, data: words(message.data) } : message, ...rest);
  };
})();
