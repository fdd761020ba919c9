import {test} from "bun:test";
