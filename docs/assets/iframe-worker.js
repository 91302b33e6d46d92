/* Search without a server.

   A page that is opened from disk may not start a worker, and the search of Material for MkDocs is one. Here a hidden
   frame stands in for it: the same script, the same messages. The name of this file is what the plugin `offline` looks
   for; without it, it would take such a script from another host. */

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.title = "search"
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      this.ready = new Promise(resolve => {
        inside.document.open()
        inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
        inside.importScripts = (...urls) =>
          urls.reduce((before, one) => before.then(() => added(inside.document, one)), Promise.resolve())
        inside.document.write("<!doctype html><html lang=en><title>search</title><body></body></html>")
        inside.document.close()
        added(inside.document, url).then(resolve)
      })
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}

function added(page, url) {
  return new Promise((resolve, reject) => {
    const script = page.createElement("script")
    script.onload = resolve
    script.onerror = reject
    script.src = url
    page.body.append(script)
  })
}
