import { expect, test } from "vitest";

import type { Message } from "../../../api/types";
import { receipt } from "./receipt";

const message = (state: Message["state"], more: Partial<Message> = {}): Message => ({
  messageId: "m-1",
  state,
  content: "Add tests",
  sender: "person",
  createdAt: "2026-11-15T14:00:00Z",
  deliveredAt: null,
  acknowledgedAt: null,
  reason: null,
  ...more,
});

test.each([
  [message("queued"), "Queued", "2026-11-15T14:00:00Z"],
  [message("held", { reason: "a permission dialog is open" }), "Held", "2026-11-15T14:00:00Z"],
  [message("delivered", { deliveredAt: "2026-11-15T14:01:00Z" }), "Delivered", "2026-11-15T14:01:00Z"],
  [message("acknowledged", { acknowledgedAt: "2026-11-15T14:02:00Z" }), "Acknowledged", "2026-11-15T14:02:00Z"],
  [message("failed", { reason: "its terminal is gone" }), "Not delivered", "2026-11-15T14:00:00Z"],
])("%j", (given, word, at) => expect(receipt(given)).toMatchObject({ word, at }));

test("why it waits or failed is said", () => {
  expect(receipt(message("held", { reason: "somebody types" })).note).toBe("somebody types");
  expect(receipt(message("failed", { reason: "gone" })).note).toBe("gone");
});
