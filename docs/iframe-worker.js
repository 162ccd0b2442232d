// A page that is opened as a file may start no worker: the search then runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const load = source => new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        Object.assign(script, { src: source, onload: done, onerror: failed });
        this.inside.document.body.append(script);
      });
      this.inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.inside.postMessage = data => {
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      };
      // What is asked before the script is there waits for it.
      this.loaded = load(new URL(url, location.href).href);
    }

    postMessage(data) {
      this.loaded.then(() => {
        const message = new this.inside.MessageEvent("message", { data });
        this.inside.dispatchEvent(message);
      });
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
