"""A scripted model for tests of real agent CLIs, without network or key.

It listens on loopback and speaks Anthropic Messages, OpenAI Chat Completions, OpenAI Responses and Gemini's
generateContent, streaming or not, so an agent needs only its base URL changed. It calls the tools that the agent offers,
by the names and schemas of that agent.

    with ScriptedModel() as model:
        ...  # start an agent with ANTHROPIC_BASE_URL=model.url, OPENAI_BASE_URL=model.url + "/v1", and so on
        model.wait_for(lambda exchange: "hello" in exchange.request.user)
        assert model.count("hello") == 1

Its answers are scripted by directives in the prompt, which are followed in order, one tool call per answer:

    [[say: TEXT]]             text; with a tool call after it, both go into one answer
    [[sh: COMMAND]]           run a command with the agent's shell tool
    [[write: PATH|TEXT]]      write a file with the agent's own tool (for an agent without tools: a file block in the text)
    [[edit: PATH|OLD|NEW]]    replace text in a file with the agent's own tool, after reading the file; whole lines for one
                              whose tool takes a patch (Codex)
    [[todo: x one; > two; - three]]   the agent's plan or to-do list: x done, > in progress, - open
    [[tool: NAME {JSON}]]     call any tool
    [[json: {JSON}]]          the answer of a turn that must match a schema: by the agent's tool for it, else as text

and modifiers of an answer, before its directive (or after the last one):

    [[wait: SECONDS]]         think before the first byte
    [[slow: SECONDS]]         stretch the text of the stream
    [[hang]] [[hang: NAME]]   no byte until `model.release()`, or `model.release("NAME")`
    [[stall]] [[stall: NAME]] the same, in the middle of the stream
    [[drop]]                  cut the connection in the middle of the stream
    [[error: STATUS]]         an HTTP error, each time; `[[error: 529 x2]]` twice, then the answer; `retry=3` adds retry-after
    [[limit: SECONDS]]        the provider's usage limit, which ends in so many seconds; `x1` as above
    [[usage: input=1 output=2 read=3 written=4]]   the token figures of the answer

A message without directives gets a short answer, or continues the current message if it came in the middle of a turn. A
directive ends at the first `]]`; `as_argument` writes JSON without one, whatever its texts contain. Calls that an agent
makes for itself (a title, a commit message, a classifier) get a separate answer and are marked `side`.

For more, pass a `rule`: a function of the request that returns a `ScriptedReply`, or None to follow the
directives. By hand: `python -m agent_orchestrator.testing.model --help`.
"""

from agent_orchestrator.testing.model.conversation import ConversationEntry, ModelRequest, OfferedTool
from agent_orchestrator.testing.model.directives import as_argument
from agent_orchestrator.testing.model.log import Arrival, Exchange, ModelTurn
from agent_orchestrator.testing.model.replies import (
    EditAction,
    HttpFailure,
    JsonAction,
    ReplyUsage,
    ScriptedReply,
    ShellAction,
    TodoAction,
    ToolCall,
    WriteAction,
    failure_reply,
    text_reply,
    usage_limit_reply,
)
from agent_orchestrator.testing.model.scripted import Rule, ScriptedModel

__all__ = [
    "Arrival",
    "ConversationEntry",
    "EditAction",
    "Exchange",
    "HttpFailure",
    "JsonAction",
    "ModelRequest",
    "ModelTurn",
    "OfferedTool",
    "ReplyUsage",
    "Rule",
    "ScriptedModel",
    "ScriptedReply",
    "ShellAction",
    "TodoAction",
    "ToolCall",
    "WriteAction",
    "as_argument",
    "failure_reply",
    "text_reply",
    "usage_limit_reply",
]
