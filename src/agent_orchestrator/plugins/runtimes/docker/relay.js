// Runs in a container without Python: forwards ports of its loopback to sockets.  node relay.js PORT:SOCKET...
const net = require('net');
for (const pair of process.argv.slice(2)) {
  const at = pair.indexOf(':');
  net.createServer({ allowHalfOpen: true }, (near) => {
    const far = net.connect({ path: pair.slice(at + 1), allowHalfOpen: true });
    near.pipe(far);
    far.pipe(near);
    near.on('error', () => far.destroy());
    far.on('error', () => near.destroy());
  }).listen(Number(pair.slice(0, at)), '127.0.0.1');
}
