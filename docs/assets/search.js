/* People search for options as they type them: --slo. The theme's index reads a dash before a word as "without". */
(() => {
  const send = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message, ...rest) {
    const asked = message && typeof message.data === "string" && typeof message.type === "number";
    return send.call(this, asked ? { ...message, data: message.data.replace(/(^|\s)-+(?=\w)/g, "$1") } : message, ...rest);
  };
})();
