const test = require('node:test');
const assert = require('node:assert');

test('doubles', () => assert.equal(2 * 2, 4));
