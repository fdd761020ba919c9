/* Leads from a notification to its session, in the page that is open or in a new one. It answers no request and keeps nothing. */
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const to = event.notification.data?.to ?? "/";
  event.waitUntil(
    self.clients.matchAll({ type: "window", includeUncontrolled: true }).then(async (open) => {
      const page = open[0];
      if (!page) return self.clients.openWindow(to);
      page.postMessage({ to });
      return page.focus();
    }),
  );
});
