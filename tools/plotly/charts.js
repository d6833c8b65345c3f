'use strict';
// plotly.js with the kinds of trace that our charts are made of, and no more.
var Plotly = require('plotly.js/lib/core'); // scatter is in it
Plotly.register([
    require('plotly.js/lib/bar'),
    require('plotly.js/lib/box'),
    require('plotly.js/lib/heatmap'),
    require('plotly.js/lib/sankey'),
]);
module.exports = Plotly;
