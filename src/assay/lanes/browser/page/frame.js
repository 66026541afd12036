// Inside the check page nobody watches the console from outside, so the frame keeps its lines itself.
self.assayConsole = [];
for (const kind of ['debug', 'log', 'info', 'warn', 'error']) {
  const write = console[kind].bind(console);
  console[kind] = (...values) => {
    self.assayConsole.push(...values.map(String).join(' ').split('\n'));
    write(...values);
  };
}
self.addEventListener('error', (event) => self.assayConsole.push(`uncaught: ${event.message}`));
self.addEventListener('unhandledrejection', (event) => self.assayConsole.push(`uncaught: ${event.reason}`));
self.assayProgress = (progress) => parent.postMessage(progress, location.origin);
