import {test} from "vitest";
