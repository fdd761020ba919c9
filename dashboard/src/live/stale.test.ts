import { expect, test } from "vitest";

import { stale } from "./stale";

test.each([
  [{}, []],
  [{ "app-a": ["agent-said"] }, [["session", "app-a"], ["fleet"]]],
  [{ "": ["plan-drafted"] }, [["fleet"]]],
  [{ "": ["plan-progress"] }, [["fleet", "plans"]]],
  [{ "": ["plan-progress", "fix-progress"] }, [["fleet", "plans"], ["fleet", "fixes"]]],
  [{ "": ["plan-progress", "plan-drafted"] }, [["fleet"]]],
])("after %j, %j is loaded anew", (touched, keys) => expect(stale(touched)).toEqual(keys));
