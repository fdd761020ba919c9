/** A box for a few words to an agent: Enter sends, Shift and Enter begin a new line. */
import { useRef, useState } from "react";

import { Button } from "../../ui/button";

interface Props {
  label: string;
  placeholder: string;
  action: string;
  tab: number;
  autoFocus?: boolean;
  onSend: (text: string) => Promise<boolean>;
  /** Escape was pressed, or the words were accepted. */
  onClose?: () => void;
}

export function Writing({ label, placeholder, action, tab, autoFocus, onSend, onClose }: Props) {
  const [text, setText] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  const send = async () => {
    const words = text.trim();
    if (!words) return;
    setText("");
    if (await onSend(words)) onClose?.();
    else setText((meanwhile) => meanwhile || words);
  };
  return (
    <form
      className="flex w-full items-end gap-1.5"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <textarea
        ref={box}
        aria-label={label}
        data-reply
        tabIndex={tab}
        autoFocus={autoFocus}
        rows={1}
        value={text}
        placeholder={placeholder}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            void send();
          } else if (event.key === "Escape") {
            event.stopPropagation();
            box.current?.closest<HTMLElement>("[data-card]")?.focus();
            onClose?.();
          }
        }}
        className="field-sizing-content max-h-40 min-h-7 w-full min-w-0 resize-none rounded-md border border-line-strong bg-surface px-2 py-1 text-sm leading-snug placeholder:text-ink-faint pointer-coarse:min-h-10 pointer-coarse:py-2 pointer-coarse:text-[16px]"
      />
      <Button type="submit" small tabIndex={tab} disabled={!text.trim()} className="min-h-7 pointer-coarse:min-h-10">
        {action}
      </Button>
    </form>
  );
}
