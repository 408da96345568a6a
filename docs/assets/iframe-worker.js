// Browsers refuse workers to pages that are opened from a folder; search is one. There, a worker is a hidden frame
// that runs the same script and passes messages on. From a server, nothing is changed.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...addresses) =>
        addresses.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
      this.ready = this.load(address);
    }

    load(address) {
      const script = this.inside.document.createElement("script");
      script.src = new URL(address, document.baseURI);
      return new Promise((done, failed) => {
        script.onload = done;
        script.onerror = () => failed(new Error(`${address} cannot be read`));
        this.inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
