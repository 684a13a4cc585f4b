// A `Worker` for pages that are opened as files, where browsers start none: a hidden frame. The search of
// the theme runs in one. Its `offline` plugin would load this from the network; the name is the one it knows.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const send = (target, data) => target.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.postMessage = (data) => setTimeout(() => send(this, data));
      const script = this.inside.document.createElement("script");
      script.src = address;
      this.ready = new Promise((loaded) => { script.onload = loaded; });
      this.inside.document.body.append(script);
      this.send = send;
    }
    set onmessage(listener) { this.addEventListener("message", listener); }
    postMessage(data) { this.ready.then(() => this.send(this.inside, data)); }
    terminate() { this.inside.frameElement.remove(); }
  };
  window.Worker = window.IFrameWorker;
}
