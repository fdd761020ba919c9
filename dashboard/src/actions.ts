/** What a person can do with a session. Each is one request; what comes of it arrives by the stream. */
import { api, path } from "./api/client";
import type { MessageState, Question, Session } from "./api/types";

const of = (id: string) => path`/api/sessions/${id}`;

const asShown = (question: Question) => (question.request ? { request: question.request } : {});

export const send = (id: string, content: string, key: string) => api.post<MessageState>(`${of(id)}/message`, { content }, key);
/** Answer a question as it was shown: if the agent asks something else by now, nothing is answered. */
export const answerText = (question: Question, text: string) =>
  api.post<MessageState>(`${of(question.session)}/answer`, { text, ...asShown(question) });
export const merge = (id: string) => api.post<Session>(`${of(id)}/merge`);
export const takeFromQueue = (id: string) => api.delete<Session>(`${of(id)}/merge`);
export const restore = (id: string) => api.post<Session>(`${of(id)}/restore`);
export const stop = (id: string) => api.delete(of(id));
export const ready = (id: string) => api.post(`${of(id)}/ready`);
export const close = (id: string) => api.post(`${of(id)}/close`);
export const rerunChecks = (id: string) => api.post(`${of(id)}/checks`);
export const undo = (id: string) => api.post(`${of(id)}/undo`);

export type Decision = "allow" | "always" | "deny";

/** Decide what a question asks: a permission, a held message, or an offered action. */
export const decide = (question: Question, decision: Decision, text?: string) =>
  api.post<MessageState>(`${of(question.session)}/answer`, {
    decision,
    ...(text ? { text } : {}),
    ...asShown(question),
    ...(question.message ? { message: question.message } : {}),
    ...(question.offer ? { offer: question.offer } : {}),
  });
