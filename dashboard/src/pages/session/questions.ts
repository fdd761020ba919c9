/** What waits for a person in one session; the same list as long as nothing changed. */
import type { Question } from "../../api/types";
import { useBoard, type Board } from "../../live/store";

let sorted: { from: Board["questions"]; by: Map<string, readonly Question[]> } = { from: [], by: new Map() };

export function questionsOf(board: Pick<Board, "questions">, id: string): readonly Question[] {
  if (sorted.from !== board.questions) sorted = { from: board.questions, by: new Map() };
  const known = sorted.by.get(id);
  if (known) return known;
  const mine = board.questions.filter((one) => one.session === id);
  sorted.by.set(id, mine);
  return mine;
}

export const useQuestions = (id: string) => useBoard((board) => questionsOf(board, id));
